"""`cvgnn export`: the dense part of a finished run for other programs, with its model card."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cvgnn.cli.options import ExportCommand
from cvgnn.cli.output import set_result
from cvgnn.cli.predict_command import moved_source
from cvgnn.export.dense_part import export_run
from cvgnn.export.model_card import model_card
from cvgnn.training.run import read_run
from cvgnn.utils.optional_import import import_optional


def export_command(command: ExportCommand, argv: Sequence[str]) -> int:
    """Write the folder, and upload it if asked to."""
    if command.push_to_hub is not None:
        import_optional("huggingface_hub", extra="hub", purpose="--push-to-hub")
    run = read_run(command.run, source=moved_source(command.run, command.graph, command.root))
    files = [("README.md", model_card(command.run).encode())]
    fitted = command.run / "preprocessing.json"
    files += [("preprocessing.json", fitted.read_bytes())] if fitted.is_file() else []
    layers = export_run(run, command.out, format=command.format, files=files)
    print(f"{len(layers)} programs written to {command.out}; docs/export.md says how they are run", file=sys.stderr)
    result = {"out": str(command.out), "layers": {layer.output: list(layer.inputs) for layer in layers}}
    if command.push_to_hub is not None:
        from cvgnn.export.hub import push_to_hub

        result["url"] = push_to_hub(command.out, command.push_to_hub)
        print(f"uploaded to {result['url']}", file=sys.stderr)
    set_result(result)
    return 0
