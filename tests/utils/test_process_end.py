"""The end of a finished process."""

import subprocess
import sys


def test_a_process_ends_at_once_after_what_is_registered() -> None:
    code = (
        "import atexit, threading, time; from cvgnn.utils.process_end import end_process;"
        "atexit.register(print, 'registered'); threading.Thread(target=time.sleep, args=(300,)).start();"
        "print('done', end=', '); end_process(3)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "done, registered\n", "")
