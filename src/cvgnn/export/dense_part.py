"""The dense part of a network: all but the sparse products, as short programs, one for each layer.

Layer `k` needs `P H^(k-1)`, and that needs the rows of layer `k - 1` of all neighbors: so one function of all
aggregates cannot be called, but one for each layer can, with a sparse product between two of them. A program reads
rows of `X`, `PX`, `H1`, `PH1`, ... and gives `H1`, `H2`, ..., at last `scores`: logits, or
numbers in the targets' unit.
"""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import safetensors.torch
import torch
from torch import Tensor, nn

from cvgnn._version import __version__
from cvgnn.errors import CvgnnError, require
from cvgnn.nn import Affine, Conv, Inputs, Network, has_own_forward
from cvgnn.ops.fused_layer import ACTIVATIONS, EPS, activation_function
from cvgnn.training.run import Run
from cvgnn.training.tasks.node_tasks import NodeTask, Rescale, Temperature
from cvgnn.utils import atomic_files
from cvgnn.utils.optional_import import import_optional

FORMATS = ("safetensors", "torch-export", "onnx")
_SUFFIX = {"torch-export": ".pt2", "onnx": ".onnx"}
_OPSET = 20  # the first with Gelu
_IR_VERSION = 10


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class DenseStep:
    """`output = activation(norm(sum_j input_j W_j + b))`.

    Args:
        output: its name.
        terms: names of inputs with their `W_j`, `[d_j, d]`.
        bias: `[d]`, or None.
        norm: gain and shift of a LayerNorm, or None.
        activation: `"relu"`, `"elu"`, `"gelu"`, or None.
    """

    output: str
    terms: dict[str, Tensor]
    bias: Tensor | None = None
    norm: tuple[Tensor, Tensor] | None = None
    activation: str | None = None

    @property
    def width(self) -> int:
        """`d`."""
        return next(iter(self.terms.values())).shape[1]

    def tensors(self) -> dict[str, Tensor]:
        """The weights by name, such as `H1/PX`, `H1/bias`, `H1/gain`, `H1/shift`."""
        found = {f"{self.output}/{name}": W for name, W in self.terms.items()}
        found |= {} if self.bias is None else {f"{self.output}/bias": self.bias}
        gain_and_shift = zip(("gain", "shift"), self.norm or (), strict=False)
        found |= {f"{self.output}/{name}": tensor for name, tensor in gain_and_shift}
        return {name: tensor.detach() for name, tensor in found.items()}

    def describe(self) -> dict[str, Any]:
        """As JSON; weights by name."""
        own = f"{self.output}/"
        return {
            "output": self.output,
            "terms": {name: own + name for name in self.terms},
            "bias": None if self.bias is None else f"{own}bias",
            "norm": None if self.norm is None else {"gain": f"{own}gain", "shift": f"{own}shift", "eps": EPS},
            "activation": self.activation,
        }


@final
class DenseLayer(nn.Module):
    """The program of one layer as a module in plain torch.

    Args:
        steps: all but the last give what later ones read.
    """

    def __init__(self, steps: Sequence[DenseStep]) -> None:
        super().__init__()
        self.steps, made = steps, {step.output for step in steps}
        self.output, self.width = steps[-1].output, steps[-1].width
        self.inputs = {name: W.shape[0] for step in steps for name, W in step.terms.items() if name not in made}
        self.weights = nn.ParameterList(
            nn.Parameter(tensor, requires_grad=False) for step in steps for tensor in step.tensors().values()
        )

    def forward(self, *rows: Tensor) -> Tensor:
        """The output for some rows of the `inputs`, in their order."""
        values, weights = dict(zip(self.inputs, rows, strict=True)), iter(self.weights)
        for step in self.steps:
            Z = sum(values[name] @ next(weights) for name in step.terms)
            Z = Z if step.bias is None else Z + next(weights)
            if step.norm is not None:
                Z = nn.functional.layer_norm(Z, (step.width,), next(weights), next(weights), EPS)
            values[step.output] = Z if step.activation is None else activation_function(step.activation)(Z)
        return values[self.output]


class _Program:
    """Records what a layer does with its inputs: names stand for them, and products are not computed.

    Args:
        name: of what the layer gives.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.steps: list[DenseStep] = []

    def add(self, Z: Affine | _Product, activation: str | None, *, output: str, norm: Any = None) -> _Name:
        """Add a step."""
        product = Z if isinstance(Z, _Product) else _Product(self, {}, None)
        if isinstance(Z, Affine):
            for A, W in Z.terms:
                product = product + (A if W is None else A @ W)
            product = product if Z.bias is None else product + Z.bias
        if not isinstance(product, _Product):
            raise TypeError
        self.steps.append(
            DenseStep(output=output, terms=product.terms, bias=product.bias, norm=norm, activation=activation)
        )
        return _Name(self, output)


@dataclass
class _Name:
    """Stands for an input or a result."""

    program: _Program
    name: str

    def __matmul__(self, W: Tensor) -> _Product:
        return _Product(self.program, {self.name: W}, None)


@dataclass
class _Product:
    """`sum_j A_j W_j + b`, recorded."""

    program: _Program
    terms: dict[str, Tensor]
    bias: Tensor | None

    def __add__(self, other: Any) -> _Product:
        if isinstance(other, Tensor):
            return _Product(self.program, self.terms, other if self.bias is None else self.bias + other)
        if not isinstance(other, _Product):
            return NotImplemented
        both = {name: self.terms[name] + W for name, W in other.terms.items() if name in self.terms}
        total = _Product(self.program, self.terms | other.terms | both, self.bias)
        return total if other.bias is None else total + other.bias

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """An activation inside a layer, such as GIN's, ends one step and begins another."""
        name = next((name for name in ACTIVATIONS if activation_function(name) is function), None)
        if name is None:
            return NotImplemented
        program = args[0].program
        return program.add(args[0], name, output=f"{program.name}_inner{len(program.steps) + 1}")


@torch.no_grad()
def dense_layers(run: Run) -> list[DenseLayer]:
    """The programs of a run's layers, in their order; BatchNorm, the temperature and the targets' scale are folded in.

    Args:
        run: of a task with labels at nodes.
    """
    model, task = run.model, run.task
    require(
        isinstance(task, NodeTask) and task.items.kind == "node" and not task.of_pairs,
        f"a run of task {task.name!r} cannot be exported: only tasks with labels at nodes are, node, multilabel and "
        "regression",
    )
    require(
        model.readout is None or isinstance(model.readout, Temperature | Rescale),
        f"the head {type(model.readout).__name__} is not one of cvgnn's own, so it cannot be exported",
    )
    require(
        not has_own_forward(model),
        f"{type(model).__name__} has a forward of its own or a hook, so its layers are not known",
    )
    programs: list[_Program] = []
    layers: list[Conv] = list(model.layers)  # type: ignore[arg-type]
    K, jumps = len(layers), list[str]()
    for k, layer in enumerate(layers, start=1):
        last = k == K and model.head is None
        program = _Program("scores" if last else f"H{k}")
        own = "X" if k == 1 else f"H{k - 1}"
        x: Any = Inputs(_Name(program, f"P{own}"), _Name(program, own), _Name(program, "H1"))  # type: ignore[arg-type]
        jumps += [program.name] if layer.uses_aggregate else []
        try:
            Z = model.affine_of(layer, x, refresh=False)
            sigma = model.sigma_of(layer)
            norm = None if sigma.gain is None or sigma.shift is None else (sigma.gain, sigma.shift)
            if last:
                program.add(_scaled(Z, model), None, output="scores")
            else:
                program.add(Z, sigma.activation, output=program.name, norm=norm)
        except (AttributeError, TypeError) as error:
            raise CvgnnError(
                f"layer {k}, a {type(layer).__name__}, does more than multiply its inputs and activate, so it "
                f"cannot be exported ({error})"
            ) from None
        programs.append(program)
    if model.head is not None:
        program = _Program("scores")
        whole, read = model.head.weight, jumps if model.jk == "concat" else [f"H{K}"]
        d = whole.shape[0] // len(read)
        parts = [whole[i * d : (i + 1) * d] for i in range(len(read))]
        terms = tuple((_Name(program, name), W) for name, W in zip(read, parts, strict=True))
        program.add(_scaled(Affine(terms, model.head.bias), model), None, output="scores")  # type: ignore[arg-type]
        programs.append(program)
    return [DenseLayer(program.steps).eval() for program in programs]


def _scaled(Z: Affine, model: Network) -> Affine:
    """The scores: `Z` with a temperature or the targets' scale."""
    readout = model.readout
    if isinstance(readout, Temperature):
        scale, shift = readout.temperature.reciprocal(), torch.zeros_like(readout.temperature)
    elif isinstance(readout, Rescale):
        scale, shift = readout.scale, readout.center
    else:
        return Z
    terms = tuple((A, None if W is None else W * scale) for A, W in Z.terms)
    if any(W is None for _, W in terms):
        raise TypeError("a last layer without weights")
    return Affine(terms, shift if Z.bias is None else Z.bias * scale + shift)


def export_run(run: Run, out: Path, *, format: str, files: Iterable[tuple[str, bytes]] = ()) -> list[DenseLayer]:
    """Write the dense part of a run into a folder, new or empty: its weights or programs, and `model.json` at last.

    Args:
        run: finished, of a task with labels at nodes.
        out: the folder.
        format: of `FORMATS`.
        files: more files of the folder, such as the model card.
    """
    layers, write = dense_layers(run), {"torch-export": _pt2, "onnx": _onnx}.get(format)
    names = [f"{layer.output}{_SUFFIX.get(format, '')}" for layer in layers]
    described = [
        {"output": layer.output, "width": layer.width, "inputs": list(layer.inputs)}
        | ({"steps": [step.describe() for step in layer.steps]} if write is None else {"file": name})
        for layer, name in zip(layers, names, strict=True)
    ]
    content = {
        "format": format, "cvgnn": __version__, "task": run.task.name, "classes": run.result.get("class_names"),
        "num_features": run.graph.num_features, "feature_norm": run.config.feature_norm,
        "aggregation": run.propagation.normalization, "layers": described,
    }  # fmt: skip
    if write is None:
        tensors = {
            name: W.contiguous() for layer in layers for step in layer.steps for name, W in step.tensors().items()
        }
        made = {"model.safetensors": safetensors.torch.save(tensors)}
    else:
        made = {name: write(layer) for layer, name in zip(layers, names, strict=True)}
    with atomic_files.report_errors(f"cannot write to {out}", "choose another --out"):
        out.mkdir(parents=True, exist_ok=True)
        require(not any(out.iterdir()), f"{out} is not empty; choose another --out, or empty it first")
        for name, data in [*made.items(), *files, ("model.json", (json.dumps(content, indent=1) + "\n").encode())]:
            atomic_files.write_file(out / name, data)
    return layers


def _pt2(layer: DenseLayer) -> bytes:
    rows = torch.export.Dim("rows")
    dtype = next(layer.parameters()).dtype
    samples = tuple(torch.zeros(2, width, dtype=dtype) for width in layer.inputs.values())
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations inside torch
        exported = torch.export.export(layer, samples, dynamic_shapes=(tuple({0: rows} for _ in samples),))
        exported.example_inputs = None  # they would be stored as a pickle
        torch.export.save(exported, stream)
    return stream.getvalue()


def _onnx(layer: DenseLayer) -> bytes:
    onnx = import_optional("onnx", extra="export", purpose="--format onnx")
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    nodes: list[Any] = []
    weights: list[Any] = []

    def add(operator: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(operator, inputs, [f"t{len(nodes)}"], **attributes))
        return f"t{len(nodes) - 1}"

    def weight(name: str, tensor: Tensor) -> str:
        weights.append(numpy_helper.from_array(tensor.numpy(), name))
        return name

    values = {name: name for name in layer.inputs}
    for step in layer.steps:
        stored = {name: weight(name, tensor) for name, tensor in step.tensors().items()}
        own = f"{step.output}/"
        Z = ""
        for name in step.terms:
            product = add("MatMul", values[name], stored[own + name])
            Z = add("Add", Z, product) if Z else product
        Z = Z if step.bias is None else add("Add", Z, stored[f"{own}bias"])
        if step.norm is not None:
            Z = add("LayerNormalization", Z, stored[f"{own}gain"], stored[f"{own}shift"], axis=-1, epsilon=EPS)
        values[step.output] = Z if step.activation is None else add(step.activation.capitalize(), Z)
    nodes.append(helper.make_node("Identity", [values[layer.output]], [layer.output]))
    kind = helper.np_dtype_to_tensor_dtype(next(layer.parameters()).numpy().dtype)
    graph = helper.make_graph(
        nodes, layer.output,
        [helper.make_tensor_value_info(name, kind, ["rows", width]) for name, width in layer.inputs.items()],
        [helper.make_tensor_value_info(layer.output, kind, ["rows", layer.width])],
        weights,
    )  # fmt: skip
    opset = helper.make_opsetid("", _OPSET)
    model = helper.make_model(graph, producer_name="cvgnn", producer_version=__version__, opset_imports=[opset])
    model.ir_version = _IR_VERSION
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()  # type: ignore[no-any-return]
