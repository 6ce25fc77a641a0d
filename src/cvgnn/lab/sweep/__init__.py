"""Sweeps: grids of configs, a pool of processes that trains them, and tables of the results."""

from cvgnn.lab.sweep.jobs import Job as Job
from cvgnn.lab.sweep.jobs import make_jobs as make_jobs
from cvgnn.lab.sweep.pool import Outcome as Outcome
from cvgnn.lab.sweep.pool import run_all as run_all
