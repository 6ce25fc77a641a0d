"""More than one process: partitioned graphs, and training on them with `torch.distributed` to the same bits."""
