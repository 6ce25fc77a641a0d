"""`cvgnn serve`: a finished run over HTTP."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from cvgnn.cli.options import ServeCommand
from cvgnn.cli.output import set_result
from cvgnn.cli.predict_command import moved_source
from cvgnn.errors import require
from cvgnn.training.run import read_preprocessing, read_run
from cvgnn.utils.optional_import import import_optional


def serve_command(command: ServeCommand, argv: Sequence[str]) -> int:
    """Listen, read the run, answer until a signal comes."""
    for module in ("starlette", "uvicorn"):
        import_optional(module, extra="serve", purpose="cvgnn serve")
    from cvgnn.serving.application import Application, bind, check_access, run_server
    from cvgnn.serving.predictor import Predictor

    token = os.environ.get("CVGNN_TOKEN") if command.token is None else command.token
    require(token != "", "CVGNN_TOKEN is empty; unset it, or give a token")
    with bind(command.host, command.port) as listener:
        loopback = check_access(listener, token)
        run = read_run(command.run, source=moved_source(command.run, command.graph, command.root))
        application = Application(
            Predictor(run, preprocessing=read_preprocessing(command.run)), token=token, loopback=loopback
        )
        host, port = listener.getsockname()[:2]
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        print(f"{command.run} at {address}; Ctrl-C ends it", file=sys.stderr, flush=True)
        run_server(application, listener)
    set_result({"run": str(command.run), "address": address, "requests": application.metrics.total})
    print(f"{application.metrics.total} requests answered", file=sys.stderr)
    return 0
