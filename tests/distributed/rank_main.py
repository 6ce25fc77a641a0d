"""One rank of a run, for the tests: trains on a partition and prints the SHA-256 of weights and histories."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import torch

from cvgnn.config import make_config
from cvgnn.distributed.partition import Partition
from cvgnn.distributed.ranks import Ranks
from cvgnn.distributed.sharded_trainer import build_sharded_trainer


def main(path: str, options: str) -> None:
    torch.set_num_threads(1)
    ranks = Ranks(timeout=60)
    for case in json.loads(options):
        config = make_config(**case)
        trainer = build_sharded_trainer(Partition(Path(path) / case.get("model", "gcn")), config, ranks)
        losses = [record.loss for record in trainer.epochs(config.epochs)]
        digest = hashlib.sha256()
        for tensor in trainer.model.state_dict().values():
            digest.update(tensor.numpy().tobytes())
        if ranks.rank == 0:
            print(json.dumps([digest.hexdigest(), losses, ranks.bytes_sent]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
