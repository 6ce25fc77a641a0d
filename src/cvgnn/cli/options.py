"""The options of every command but `cvgnn diagnose`, one dataclass for each; its docstrings are the help.

Nothing here imports torch: `--help` and errors in options appear at once. What a command does is in `NAME_command.py`,
which imports whatever it needs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

import tyro

from cvgnn.cli.argv import RunCount, option, parse, require_at_least, require_booleans
from cvgnn.config import CheckpointPlan, GraphSource, TrainConfig
from cvgnn.data.table_options import TableOptions
from cvgnn.errors import require, require_integer, require_known, require_number
from cvgnn.utils.formatting import parse_bytes


@dataclass(frozen=True, kw_only=True)
class Command:
    """The options of a command."""

    flags: ClassVar[bool] = False
    """Whether a boolean option takes no value, instead of True or False."""

    least: ClassVar[Mapping[str, int]] = {}
    """Options that are whole numbers, and the smallest value of each."""

    def check(self) -> None:
        """Refuse values that can be judged without the graph."""
        require_at_least(self, **self.least)

    @classmethod
    def parse(cls, argv: Sequence[str], *, prog: str) -> Self:
        """The options in argv; `--help` and unknown options end the program here."""
        return parse(cls, argv, prog=prog, flags=cls.flags)


@dataclass(frozen=True, kw_only=True)
class EveryCommand:
    """The options of every command, which `main` parses, for the scripts of cvgnn completion."""

    quiet: bool = False
    """Only results, warnings and errors."""

    verbose: bool = False
    """Details such as checkpoints and threads."""

    json: bool = False
    """The result as one JSON object."""

    plugin: tuple[str, ...] = ()
    """Import this module first."""

    config_file: Annotated[Path | None, tyro.conf.arg(name="config")] = None
    """Options from a .toml file."""


@dataclass(frozen=True, kw_only=True)
class GraphFile(Command):
    """How a file or folder with a graph is read."""

    flags = True

    directed: bool = False
    """Keep the directions of the edges instead of making the graph undirected."""

    unlabelled: bool = False
    """The nodes may have no labels: the graph is one for task link."""

    split_seed: int = 0
    """Seed of the random split, for a graph without a split."""

    tables: Annotated[TableOptions, tyro.conf.arg(name="")] = dataclasses.field(default_factory=TableOptions)

    def graph_source(self, path: Path) -> GraphSource:
        """The graph in a file or folder, read with these options."""
        own = {name: value for name, value in vars(self).items() if name in GraphSource.__dataclass_fields__}
        return GraphSource(graph=path, **own, **self.tables.table_options())


@dataclass(frozen=True, kw_only=True)
class FinishedRun(Command):
    """Which run, and where its graph is."""

    run: Annotated[Path, tyro.conf.Positional]
    """Folder that cvgnn train --out has written."""

    root: Path | None = None
    """Folder with the data set's raw files, if it is no longer where the run read it."""

    ranks: int = 1
    """Start so many processes on this machine, for a graph that cvgnn partition has written (docs/distributed.md)."""

    timeout: float = 300.0
    """With several ranks: seconds after which a rank that does not answer ends the command."""

    def check(self) -> None:
        """Refuse what can be judged at once."""
        require_at_least(self, ranks=1)
        require_number("timeout", self.timeout, "a number of at least 1", at_least=1.0)


@dataclass(frozen=True, kw_only=True)
class ManyRuns(Command):
    """How many runs are run."""

    workers: int | None = None
    """Runs at a time; default: as many as there are cores for their threads."""


@dataclass(frozen=True, kw_only=True)
class SetOptions(Command):
    """The graph and the options of every run."""

    source: Annotated[GraphSource, tyro.conf.arg(name="")] = dataclasses.field(default_factory=GraphSource)

    set: tuple[str, ...] = ()
    """Options of every run, such as epochs=50."""


@dataclass(frozen=True, kw_only=True)
class TrainCommand(Command):
    """Train a graph neural network on a data set and report its accuracy.

    The defaults train the bundled CiteSeer graph in a few seconds.
    --out DIR keeps config.json, metrics.jsonl, result.json, weights.safetensors and the run's checkpoints.
    --resume DIR continues a run that was stopped or killed, with the same result as without the stop.
    """

    source: Annotated[GraphSource, tyro.conf.arg(name="")] = dataclasses.field(default_factory=GraphSource)

    out: Path | None = None
    """Folder for the run's files, new or empty; nothing is written if not given."""

    resume: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Continue the run in this folder, with its own options; the number of epochs may grow."""

    settings: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Read options from this .toml file, or from the config.json of another run; options given here override them."""

    defaults: Literal["auto", "fixed", "paper"] | None = None
    """Values of the options that are not given: auto = chosen from the size and the labels of the graph (the
    default), fixed = those in this help (with --resume and --settings), paper = the paper's."""

    plan: Annotated[CheckpointPlan, tyro.conf.arg(name="")] = dataclasses.field(default_factory=CheckpointPlan)

    tensorboard: Annotated[tuple[Path, ...] | None, tyro.conf.arg(metavar="[DIR]")] = None
    """Also write event files for TensorBoard into this folder, by default tensorboard/ in the run's folder."""

    check_memory: bool = True
    """Refuse a run that does not fit into memory, before it starts."""

    ranks: int = 1
    """Start so many processes on this machine, for a graph that cvgnn partition has written (docs/distributed.md)."""

    timeout: float = 300.0
    """With several ranks: seconds after which a rank that does not answer ends the run."""

    print_config: bool = False
    """Print all options of the run, those that were chosen for the graph too, as a file for --config; train nothing."""

    exact: bool = False
    """With --resume: refuse other versions of cvgnn, torch or numpy and another processor, which may change the last
    bits of the result; without this option they are a warning."""

    config: Annotated[TrainConfig, tyro.conf.arg(name="")] = dataclasses.field(default_factory=TrainConfig)

    def check(self) -> None:
        """Refuse what can be judged at once."""
        require_booleans(self, "check_memory", "exact", "print_config")
        require_at_least(self, ranks=1)
        require_number("timeout", self.timeout, "a number of at least 1", at_least=1.0)

    @classmethod
    def parse(cls, argv: Sequence[str], *, prog: str) -> Self:
        """The options in argv; their defaults come from the run folder or file that it names."""
        resume, settings = option(argv, "--resume"), option(argv, "--settings")
        require(resume != "", "--resume needs the folder of a run, such as --resume runs/a")
        require(resume is None or settings is None, "give either --resume or --settings, not both")
        named = settings if resume is None else Path(resume) / "config.json"
        if named is None or "--help" in argv or "-h" in argv:
            return parse(cls, argv, prog=prog)
        from cvgnn.training.resume import check_resume_options
        from cvgnn.training.run_folder import check_is_folder, read_settings

        if resume is not None:
            check_is_folder(Path(resume))
        source, config = read_settings(Path(named))
        default = cls(source=source, config=config)
        command = parse(cls, argv, prog=prog, default=default)
        if resume is not None:
            require(command.out is None, "--resume continues in its own folder; leave --out out")
            then, now = ({**c.source.to_dict(), **c.config.to_dict()} for c in (default, command))
            check_resume_options(then, now, folder=Path(resume))
        return command


@dataclass(frozen=True, kw_only=True)
class InspectCommand(GraphFile):
    """Show nodes, edges, classes, splits and columns of a graph, and what looks suspicious; nothing is trained.

    PATH is a folder with tables nodes and edges (.csv, .parquet, .arrow), an .npz or .pt file, or a store (see
    docs/files.md).
    """

    path: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="PATH")]
    """The graph to read."""


@dataclass(frozen=True, kw_only=True)
class PredictCommand(FinishedRun):
    """Predict the class, the labels or the numbers of nodes with the model of a finished run.

    Prints CSV, or writes a file with --out. The columns: node = its own id, class = the predicted one, probability =
    that of the class, label = the true class, split = train, val or test, and p_CLASS = the probability of each class.
    Several labels a node are in the column labels, separated by |, and numbers in the column prediction.
    A run of task graph has one row a graph, and graph = its number instead of node.
    A few --nodes cost their neighborhood, not the graph; so do --new ones, which are not in it (see docs/inductive.md).
    Tasks edge and link predict for pairs of nodes, --edges; the columns: source, target, and score and probability of a
    link, or class and its probability.
    """

    nodes: str | None = None
    """Node ids separated by commas, or a file with one id per line; all nodes if not given. For a run of task graph:
    numbers of graphs."""

    edges: Path | None = None
    """Tasks edge and link: table of pairs of nodes, .csv, .parquet or .arrow, with the columns source and target."""

    columns: tuple[str, ...] = ()
    """Columns to write, in this order: node, class, probability, label, split, p_CLASS for one class, or
    probabilities for all of these; all columns if not given."""

    embeddings: int | None = None
    """Write the representations of this layer instead: 1 is the first hidden layer, K the logits."""

    out: Path | None = None
    """File to write: .csv, .parquet or .npy; printed as CSV if not given."""

    force: bool = False
    """Replace the file of --out if it exists."""

    graph: Path | None = None
    """The graph, if it is no longer where the run read it, or another one with the same features or columns, which
    needs neither labels nor a split."""

    new: tuple[Path, ...] = ()
    """Predict new nodes instead, which are not in the graph: a table of them (id, features) and one of their edges
    (source, target, perhaps weight) to nodes of the graph and among themselves."""

    unknown_edges: Literal["error", "drop"] | None = None
    """What to do with an edge of --graph or --new whose node is unknown: report an error, or leave the edge out; as the
    run did if not given."""

    def check(self) -> None:
        """Refuse what is neither True nor False."""
        super().check()
        require_booleans(self, "force")


@dataclass(frozen=True, kw_only=True)
class EvaluateCommand(FinishedRun):
    """Compute every metric of the task of a finished run, on each split, by exact inference.

    Prints also a table of the classes or labels, the confusion matrix and the calibration, on the test nodes if there
    are any.
    """

    graph: Path | None = None
    """The graph, if it is no longer where the run read it, or another labelled one with the same features."""


@dataclass(frozen=True, kw_only=True)
class ServeCommand(FinishedRun):
    """Answer requests over HTTP with the model of a finished run: predictions, embeddings, and a page to try it.

    Nodes of the graph by their ids, and new nodes by their features and neighbors; see docs/serving.md.
    Needs Starlette and uvicorn: pip install 'cvgnn[serve]'. Ctrl-C or SIGTERM ends it after the requests in flight.
    """

    graph: Path | None = None
    """The graph, if it is no longer where the run read it, or another one with the same features or columns."""

    host: str = "127.0.0.1"
    """Address to listen on. Any but this machine's own needs a token."""

    port: int = 8000
    """Port to listen on; 0 = a free one."""

    token: str | None = None
    """What a request must send as Authorization: Bearer TOKEN. Other users of the machine see options: better set the
    environment variable CVGNN_TOKEN."""

    def check(self) -> None:
        """Refuse what can be judged at once."""
        require_integer("--port", self.port, at_least=0, at_most=65535)
        require(self.token != "", "--token is empty; leave it out, or give one")


@dataclass(frozen=True, kw_only=True)
class ExportCommand(FinishedRun):
    """Write the dense part of a finished run for other programs: a program for each layer, and a model card.

    Between two programs stands a product with the graph's sparse matrix; docs/export.md has an example with SciPy.
    For tasks with labels at nodes: node, multilabel, regression.
    """

    flags = True

    out: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """Folder to write, new or empty."""

    format: Literal["safetensors", "torch-export", "onnx"] = "safetensors"
    """safetensors = weights, and the programs as JSON; torch-export = .pt2 files; onnx = .onnx files, which needs the
    package onnx (pip install 'cvgnn[export]')."""

    graph: Path | None = None
    """The graph, if it is no longer where the run read it."""

    push_to_hub: Annotated[str | None, tyro.conf.arg(metavar="USER/NAME")] = None
    """Also upload the folder to this repository of the Hugging Face Hub, a new one is private (pip install
    'cvgnn[hub]')."""

    def check(self) -> None:
        """Refuse what can be judged at once."""
        require_known("format", self.format, ("safetensors", "torch-export", "onnx"))


@dataclass(frozen=True, kw_only=True)
class CardCommand(Command):
    """Print the model card of a finished run: data, settings, metrics with their protocol, command and versions."""

    flags = True

    run: Annotated[Path, tyro.conf.Positional]
    """Folder that cvgnn train --out has written."""

    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE.md")] = None
    """File to write; printed if not given."""

    force: bool = False
    """Replace the file of --out if it exists."""


@dataclass(frozen=True, kw_only=True)
class ReproduceCommand(ManyRuns):
    """Run the paper's tuned settings (Appendix B) and print its Table 5 beside ours, by both protocols.

    Finished runs are kept in --out and never repeated; the same command continues an interrupted one.
    Writes table.md, table.tex and table.json. --list shows the settings and the grids, and runs nothing.
    If a data set is missing and cannot be downloaded, it is named, the others are run, and the exit code is 1.
    --recipe best runs our own best settings for citeseer, cora and pubmed instead (docs/best.md).
    """

    flags = True
    least: ClassVar[Mapping[str, int]] = {"runs": 1, "first": 0, "threads": 1, "workers": 1}

    recipe: Literal["paper", "best"] = "paper"
    """Whose settings: the paper's tuned ones for each optimizer, or our best ones, tuned by validation accuracy."""

    dataset: str = "citeseer"
    """Data sets, separated by commas: citeseer (bundled), cora, pubmed, ogbn-arxiv, flickr, reddit, or all of them."""

    optimizer: str = "all"
    """Optimizers, separated by commas: adam, heavy-ball, amsgrad, adagrad, sgd, or all of them."""

    runs: int | None = None
    """Runs of each recipe; default: the paper's 3 (for reddit 1), 10 for the best recipes. Run i has seed i, and the
    same initial weights for every optimizer."""

    first: int = 0
    """Number, and so seed, of the first run."""

    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("runs/reproduce")
    """Folder for the runs and the tables."""

    root: Path | None = None
    """Folder with the data sets' raw files, if they shall not be downloaded; citeseer needs none."""

    scheme: Literal["without-replacement", "with-replacement", "paper", "released"] | None = None
    """How neighbors are drawn; default: without replacement. released is the scheme of the paper's code, biased: see
    docs/reproduction.md."""

    form: Literal["torch", "paper"] | None = None
    """The form of the optimizers; default: torch's, which reproduces Table 5."""

    estimator: Literal["cvd", "cv", "ns", "exact"] | None = None
    """How neighbors are aggregated; default: cv, the paper's."""

    epochs: int | None = None
    """Epochs; default: the paper's."""

    threads: int = 1
    """Threads of a run."""

    list: bool = False
    """Show the settings, and run nothing."""

    def check(self) -> None:
        """Refuse what can be judged at once."""
        super().check()
        require_known("recipe", self.recipe, ("paper", "best"))


@dataclass(frozen=True, kw_only=True)
class SweepCommand(SetOptions, ManyRuns):
    """Train every combination of some options, on all cores, and show which is best on the validation set.

    $ cvgnn sweep --grid lr=0.01,0.05 num_neighbors=2,5 optimizer=adam,sgd --set epochs=50 hidden=32 --runs 3
    $ cvgnn sweep --paper cora --root DIR        the paper's grid (Table 3), five optimizers, three runs each
    $ cvgnn sweep --file sweep.toml              tables base, grid and list; see docs/sweeps.md

    Finished runs are kept in --out and never repeated; the same command continues an interrupted sweep.
    """

    least: ClassVar[Mapping[str, int]] = {"runs": 1, "threads": 1, "workers": 1}

    grid: tuple[str, ...] = ()
    """Options and their values, such as lr=0.01,0.05; every combination is run. Hops of num_neighbors: 10+5."""

    runs: RunCount[int | None] = None
    """Runs of each setting, with seeds 0, 1, ...; a setting's numbers are means over them. Default: 1, with --paper as
    many as the paper's."""

    paper: Annotated[str | None, tyro.conf.arg(metavar="DATASET")] = None
    """The paper's grid for a data set, with its fixed settings; --grid and --set change it."""

    file: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """A .toml file with the runs, instead of --grid, --set and --paper; it may leave --dataset, --root and --runs
    to the command line."""

    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("runs/sweep")
    """Folder for the runs and the tables."""

    choose: Literal["validation", "test"] = "validation"
    """The split whose metric selects the best settings; test is the paper's protocol, which selects on the test set."""

    threads: int | None = None
    """Threads of a run; default: 1."""


@dataclass(frozen=True, kw_only=True)
class SearchCommand(SetOptions, ManyRuns):
    """Search for the options with the best validation metric, on all cores, on several machines if you like.

    $ cvgnn search --space lr=0.001..0.1:log hidden=16..256 optimizer=adam,amsgrad --set epochs=50 --trials 40 --runs 3
    $ cvgnn search --file search.toml            tables base and space; see docs/search.md

    Needs Optuna: pip install 'cvgnn[search]'. The same command continues a stopped search; more --trials extend it.
    """

    least: ClassVar[Mapping[str, int]] = {"trials": 1, "runs": 1, "threads": 1, "workers": 1, "sampler_seed": 0}

    space: tuple[str, ...] = ()
    """Options and what to try: ranges such as lr=0.001..0.1:log or hidden=16..256, lists such as optimizer=adam,sgd."""

    trials: int = 20
    """Settings to try in all, by every search that shares the study."""

    runs: int = 1
    """Runs of each setting, with seeds 0, 1, ...; settings are compared by their mean validation metric."""

    file: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """A .toml file with the space and the options of every run, instead of --space and --set."""

    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("runs/search")
    """Folder for the runs, the result and, if --storage is not given, the study."""

    study: str = "search"
    """Name of the study; searches with the same name in the same storage share it."""

    storage: Annotated[str | None, tyro.conf.arg(metavar="URL")] = None
    """Where the study is stored: a database URL as Optuna takes it, or a journal file; default: DIR/journal.log."""

    sampler_seed: int | None = None
    """Seed of the choice of settings; with one worker the search is then repeatable."""

    threads: int = 1
    """Threads of a run."""

    def check(self) -> None:
        """Refuse what can be judged at once."""
        super().check()
        require(bool(self.study), "--study needs a name, such as --study mine")


@dataclass(frozen=True, kw_only=True)
class TuneCommand(SetOptions):
    """Find good settings for a graph in a given time, by the task's metric on the validation set.

    $ cvgnn tune --graph my_graph.npz --minutes 20 --out runs/tuned

    Starts with the defaults, tries others from a space that fits the graph, and stops those that fall behind. Ends with
    the best settings and the command that trains with them. The same command goes on for as many minutes more.
    Needs Optuna: pip install 'cvgnn[search]'.
    """

    least: ClassVar[Mapping[str, int]] = {"sampler_seed": 0}

    minutes: float = 10.0
    """How long to try settings; the first one, the defaults, is always trained to its end."""

    set: tuple[str, ...] = ()
    """Options of every run, such as model=gcn; they are not tuned."""

    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("runs/tune")
    """Folder for the study, all trials (search.json) and the best settings (best.toml)."""

    sampler_seed: int | None = None
    """Seed of the choice of settings."""

    def check(self) -> None:
        """Refuse what can be judged at once."""
        super().check()
        require_number("--minutes", self.minutes, "a number above 0", above=0.0)


@dataclass(frozen=True, kw_only=True)
class ReportCommand(Command):
    """Write one HTML file about runs and diagnoses: curves, tables, heat maps, and the origin of every number.

    $ cvgnn report runs/reproduce runs/sweep --out report.html

    The file needs no network and no other file. Unfinished runs are shown with the epochs they have.
    """

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIR...")]
    """Folders of cvgnn train --out, sweep, reproduce or diagnose --out, or their parent folders."""

    out: Annotated[Path, tyro.conf.arg(metavar="FILE.html")] = Path("report.html")
    """The file to write; an existing file is replaced."""

    title: str | None = None
    """Title of the page; by default it names runs or diagnoses, whichever there are."""

    figures: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Also write the figures as PDF and PNG into this folder; needs matplotlib (pip install 'cvgnn[plots]')."""

    def check(self) -> None:
        """Refuse what can be judged at once."""
        example = "cvgnn report runs/a --out report.html"
        require(bool(self.folders), f"give at least one folder with runs, such as: {example}")
        require(self.out.suffix.lower() in (".html", ".htm"), f"--out must be an .html file, not {self.out}")
        require(not self.out.is_dir(), f"--out must be a file, but {self.out} is a folder")


@dataclass(frozen=True, kw_only=True)
class ConvertCommand(GraphFile):
    """Convert a graph to a store: a folder that opens at once, whatever its size.

    IN is an .npz or .pt file, a folder with tables nodes and edges (.csv, .parquet, .arrow), or a store (see
    docs/files.md).
    """

    source: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="IN")]
    """The graph to read."""

    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
    """Folder for the store, new or empty."""

    propagate: Literal["symmetric", "random-walk", "mean", "sum", "none"] = "none"
    """Also store P X, the propagated features: training then starts without computing them. Symmetric or random-walk
    for GCN, mean for SAGE, sum for GIN."""

    compact: int | None = None
    """Store only what a network reads that samples at this many hops (layers - 1): the nodes of the split, their
    neighborhood, and P X (symmetric, unless --propagate names another). Training ends with the same bits."""

    splits: tuple[Literal["train", "val", "test"], ...] = ("train", "val", "test")
    """With --compact: the splits that are trained on or evaluated; the others are left out."""

    memory: str | None = None
    """Memory to use at most, such as 8G, for a folder of tables: it is then converted piece by piece, whatever its
    size. Without it, this is done where the tables would not fit into the free memory. With --compact: more memory
    makes fewer passes over the edges."""

    train_fraction: float = 0.6
    """Share of the labelled nodes in a random split's training set."""

    val_fraction: float = 0.2
    """Share of the labelled nodes in a random split's validation set; the rest is for testing."""

    per_class: int | None = None
    """Training nodes of each class in a random split, instead of a share."""

    def check(self) -> None:
        """Refuse what can be judged at once."""
        require_known("propagate", self.propagate, ("symmetric", "random-walk", "mean", "sum", "none"))
        require(self.compact is None or self.compact >= 0, f"--compact must be 0 or more hops, not {self.compact}")
        good = self.memory is None or parse_bytes(self.memory) is not None
        require(good, f"--memory must be a size such as 8G, not {self.memory!r}")
        self.graph_source(self.source)


@dataclass(frozen=True, kw_only=True)
class PartitionCommand(Command):
    """Cut a graph into shards, to train on it with several processes or machines (docs/distributed.md).

    IN is a store, or any other form of a graph with labels at nodes (see docs/files.md).
    """

    flags = True

    source: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="IN")]
    """The graph to read."""

    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
    """Folder for the shards, new or empty."""

    shards: int = 8
    """How many, a power of two. Every number of ranks that divides it gives the same bits."""

    method: Literal["metis", "stream", "range"] = "stream"
    """metis = the fewest edges between shards (needs pymetis), stream = one greedy pass, range = keeps the order of the
    nodes."""

    propagate: Literal["symmetric", "random-walk", "mean", "sum"] | None = None
    """Normalization of the stored P X: mean for SAGE, sum for GIN, symmetric or random-walk for GCN and GCNII; by
    default that of the model which cvgnn train chooses for the graph."""

    feature_norm: Literal["none", "row", "l2"] = "none"
    """What each row of X is divided by before it is stored: row = the sum of its absolute values, l2 = its Euclidean
    norm. Training takes the same --feature-norm."""


@dataclass(frozen=True, kw_only=True)
class DatasetsCommand(Command):
    """List the named data sets: their sizes, and whether they are on this machine. Downloads nothing.

    Each edge is counted once. The edges of ogbn-arxiv are citations, which are loaded in both directions.
    The synthetic data sets have the sizes of the real ones (synthetic-20k is small) and are generated on first use.
    --verify NAME loads a data set, downloads it if needed, and compares its counts with Table 2 of the paper.
    """

    root: Path | None = None
    """Folder with upstream's raw files; the cache folder (CVGNN_HOME) if not given."""

    verify: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Name of a data set to load and verify; exit code 1 if a count differs."""


@dataclass(frozen=True, kw_only=True)
class WarmupCommand(Command):
    """Compile all kernels for this processor and keep them, so that no later run compiles.

    Call it in the build of a container image, with NUMBA_CACHE_DIR set to a folder of the image. See docs/install.md.
    """


@dataclass(frozen=True, kw_only=True)
class CompletionCommand(Command):
    """Print a script that completes commands, options and values of options in a shell.

    bash: cvgnn completion bash > ~/.local/share/bash-completion/completions/cvgnn

    zsh: cvgnn completion zsh > ~/.zfunc/_cvgnn (with fpath+=~/.zfunc before compinit in ~/.zshrc)

    fish: cvgnn completion fish > ~/.config/fish/completions/cvgnn.fish
    """

    shell: Annotated[Literal["bash", "zsh", "fish"], tyro.conf.Positional]
    """Of which shell."""

    def check(self) -> None:
        """Refuse other shells."""
        require_known("shell", self.shell, ("bash", "zsh", "fish"))
