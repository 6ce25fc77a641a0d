#!/usr/bin/env bash
# Build the wheel and use it outside the checkout: trained, reported, and as a user who may write nowhere.
set -euo pipefail
cd "$(dirname "$0")/.."
unset VIRTUAL_ENV PYTHONPATH
make .venv/.installed

# The wheel, in an empty environment in a folder that knows nothing of the checkout.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
.venv/bin/python -m build --wheel --no-isolation --outdir "$work" . >"$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
constraints=$PWD/constraints.txt
cd "$work"
python3 -m venv empty
empty/bin/python -m pip install --quiet --disable-pip-version-check -c "$constraints" cvgnn-*.whl
empty/bin/cvgnn --version
empty/bin/cvgnn train --epochs 1 --out "$work/run"
test -s "$work/run/result.json"
test -s "$work/run/weights.safetensors"
empty/bin/cvgnn report "$work/run" --out "$work/report.html"
grep -q "class FigureView" "$work/report.html"
echo "wheel: installed outside the checkout and trained one epoch"

# The same wheel as user nobody, who can write neither to the install nor to a HOME, in two processes at once.
# dac_read_search lets nobody read an interpreter below /root, and write nowhere.
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
  chmod 755 "$work"
  mkdir -m 1777 "$work/tmp"
  nobody=(env -i "PATH=$PATH" "TMPDIR=$work/tmp" setpriv --reuid=65534 --regid=65534 --clear-groups
    --inh-caps=+dac_read_search --ambient-caps=+dac_read_search)
  "${nobody[@]}" empty/bin/cvgnn train --epochs 1 --json >"$work/first.json" &
  "${nobody[@]}" empty/bin/cvgnn train --epochs 1 --json >"$work/second.json"
  wait $!
  grep -q test_accuracy "$work/first.json"
  grep -q test_accuracy "$work/second.json"
  test -d "$work/tmp/cvgnn-65534/kernels"
  echo "wheel: user nobody trained in two processes, without HOME, on a read-only install"
else
  echo "wheel: not tried as user nobody, because this is not root or there is no setpriv"
fi
