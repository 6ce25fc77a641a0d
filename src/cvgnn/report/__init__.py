"""A report on runs: folders read, means over seeds, tables and figures, in one HTML page or as files for a paper."""

from cvgnn.report.build import Report as Report
from cvgnn.report.build import build as build
from cvgnn.report.page import render as render
from cvgnn.report.reading import collect as collect
