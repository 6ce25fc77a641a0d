"""Parts of the user's own by name: what is registered here can be named in the command line, sweeps and files."""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args, get_type_hints

from cvgnn.config import CUSTOM, LOSSES, REGISTERED, TrainConfig
from cvgnn.errors import CvgnnError, require

PLUGINS: list[str] = []
"""The modules that `import_plugin` has imported; the processes of a sweep import them too."""


def register_model(name: str, factory: Callable[..., Any]) -> None:
    """Make a network usable as `model=name`.

    Args:
        name: not that of another model.
        factory: a subclass of `cvgnn.Network`, or a function that takes its keyword arguments and returns a network.
    """
    _register("model", name, factory)


def register_estimator(name: str, factory: Callable[..., Any]) -> None:
    """Make an estimator usable as `estimator=name`.

    Args:
        name: not that of another estimator.
        factory: gets the feature source and the widths of the hidden layers and returns a `cvgnn.Estimator`; a
            subclass is such a function.
    """
    _register("estimator", name, factory)


def register_optimizer(name: str, factory: Callable[..., Any]) -> None:
    """Make an optimizer usable as `optimizer=name`.

    Args:
        name: not that of another optimizer.
        factory: gets the parameters, `lr` and `weight_decay`, and returns a `torch.optim.Optimizer`; `beta1`, `beta2`
            and `nu_min` are passed too where the user gives them. `torch.optim.AdamW` is such a function.
    """
    _register("optimizer", name, factory)


def register_loss(name: str, function: Callable[..., Any]) -> None:
    """Make a loss usable as `loss=name`.

    Args:
        name: not that of another loss.
        function: of logits `[B, C]` and int64 labels `[B]`; returns a differentiable number, the mean over the nodes.
    """
    _register("loss", name, function)


def register_task(name: str, factory: Callable[..., Any]) -> None:
    """Make a task usable as `task=name`.

    Args:
        name: not that of another task.
        factory: gets the graph and the `TrainConfig` and returns a `cvgnn.Task`.
    """
    _register("task", name, factory)


def import_plugin(module: str) -> None:
    """Import a module that registers parts; it is searched for in the current folder too.

    Only the user names a plugin, on the command line or in Python: no file can.

    Args:
        module: its name, as in an import statement.
    """
    require(
        all(part.isidentifier() for part in module.removesuffix(".py").split(".")),
        f"--plugin takes the name of a module, such as my_parts for my_parts.py in the current folder, not {module!r}",
    )
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.append(folder)  # the `cvgnn` program does not have the current folder in its path, `python -m` does
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:  # the plugin itself imports something that is missing
            raise CvgnnError(
                f"the plugin {module!r} needs the package {error.name!r}, which is not installed"
            ) from None
        hint = f" (without .py: --plugin {module.removesuffix('.py')})" if module.endswith(".py") else ""
        raise CvgnnError(
            f"there is no module {module!r} for --plugin in {folder} or among the installed packages{hint}"
        ) from None
    if module not in PLUGINS:
        PLUGINS.append(module)


def plugin_options() -> list[str]:
    """The options of the command line that import the plugins again, for the record of a run."""
    return [argument for module in PLUGINS for argument in ("--plugin", module)]


def plugins_digest() -> str | None:
    """SHA-256 over the source files of the plugins; None without any. Other code is another run."""
    if not PLUGINS:
        return None
    total = hashlib.sha256()
    for module in sorted(PLUGINS):
        file = getattr(sys.modules.get(module), "__file__", None)
        total.update(module.encode() + b"\0" + (Path(file).read_bytes() if file and Path(file).is_file() else b""))
    return total.hexdigest()


def _register(kind: str, name: str, factory: Callable[..., Any]) -> None:
    require(callable(factory), f"{kind} {name!r} needs a class or a function, not {factory!r}")
    require(
        isinstance(name, str) and name != "" and "," not in name and name.isprintable() and not name.startswith(CUSTOM),
        f"{kind} must have a name without commas, not {name!r}",
    )
    built_in = LOSSES if kind == "loss" else get_args(get_type_hints(TrainConfig)[kind])
    require(name not in built_in, f"{kind} {name!r} is built in; register yours under another name")
    # The same factory again is a module that was imported twice, or a notebook cell that was run twice.
    REGISTERED[kind][name] = factory
