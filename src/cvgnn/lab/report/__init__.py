"""A report on runs and diagnoses: charts, tables and heat maps in one HTML page, or as files for a paper."""

from cvgnn.lab.report.content import Report as Report
from cvgnn.lab.report.content import build as build
from cvgnn.lab.report.content import render as render
from cvgnn.lab.report.run_reader import collect as collect
