"""`cvgnn partition`: cut a graph into shards, to train on it with several processes or machines."""

from __future__ import annotations

import time
from collections.abc import Sequence

from cvgnn.cli.options import PartitionCommand
from cvgnn.cli.output import Output, set_result
from cvgnn.config import GraphSource, TrainConfig
from cvgnn.distributed.cost import rank_bytes, sent_bytes
from cvgnn.distributed.partition import Partition, partition_graph
from cvgnn.training.defaults import MODEL_OF, default_options
from cvgnn.training.graph_source import load_source
from cvgnn.utils.formatting import format_bytes
from cvgnn.utils.progress import ProgressReporter


def partition_command(command: PartitionCommand, argv: Sequence[str]) -> int:
    """Write the shards, and print their quality and cost."""
    output, start = Output(ignore_write_errors=False), time.monotonic()
    graph = load_source(GraphSource(graph=command.source))
    options = {**default_options(graph, "auto"), "feature_norm": command.feature_norm}
    if command.propagate is not None:
        options["model"] = MODEL_OF[command.propagate]
    config = TrainConfig(**options)
    propagate = command.propagate or ("mean" if config.model == "sage" else "symmetric")
    with ProgressReporter("writing") as progress:
        balance = partition_graph(
            graph, command.out, shards=command.shards, method=command.method, propagate=propagate,
            feature_norm=command.feature_norm, progress=progress,
        )  # fmt: skip
    output.show(str(graph))
    output.show(
        f"{command.shards} shards by {command.method!r}, P X {propagate}: {balance.edge_cut:.1%} of the edges join two "
        "shards; the "
        f"largest shard has {balance.nodes:.2f} times the mean's nodes, {balance.edges:.2f} times its edges and "
        f"{balance.train:.2f} times its training nodes"
    )
    partition, costs = Partition(command.out), []
    counts = [2**k for k in range(command.shards.bit_length())]
    for ranks in counts:
        memory, sent = rank_bytes(partition, config, ranks), sent_bytes(partition, config, ranks)
        costs.append({"ranks": ranks, "memory_bytes": sum(memory.values()), "sent_bytes_per_step": round(sent)})
        output.show(
            f"{ranks} rank{'s' * (ranks > 1)}: each holds about {format_bytes(sum(memory.values()))} "
            f"({format_bytes(memory['shards'])} of it mapped) and sends {format_bytes(round(sent))} a step of "
            f"{config.batch_size} nodes at width {config.hidden}"
        )
    num_bytes = partition.shard_bytes()
    output.show(f"written to {command.out}: {format_bytes(num_bytes)} in {time.monotonic() - start:.1f} s")
    set_result(
        {
            "nodes": graph.num_nodes, "entries": graph.num_edges, "shards": command.shards, "method": command.method,
            "propagate": propagate, **balance._asdict(), "costs": costs, "out": str(command.out),
            "bytes": num_bytes,
        }
    )  # fmt: skip
    return 0
