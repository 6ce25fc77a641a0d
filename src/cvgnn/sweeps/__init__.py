"""Many runs: grids of configs, a pool of processes that finishes them, and the tables that come out."""

from cvgnn.sweeps.jobs import Job as Job
from cvgnn.sweeps.jobs import make_jobs as make_jobs
from cvgnn.sweeps.pool import Outcome as Outcome
from cvgnn.sweeps.pool import run_all as run_all
