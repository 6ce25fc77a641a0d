"""The method in dense float64 numpy, literally as the paper writes it: the slow twin of the fast code.

Nothing here imports torch, numba or another part of cvgnn (only the error sentences), so that agreement
with the fast implementation is agreement of two independent readings of the paper.
"""

from cvgnn.reference.algorithm1 import ReferenceTrainer as ReferenceTrainer
from cvgnn.reference.gcn import batch_statistics as batch_statistics
from cvgnn.reference.gcn import cv_forward_backward as cv_forward_backward
from cvgnn.reference.gcn import exact_forward as exact_forward
from cvgnn.reference.gcn import receptive_fields as receptive_fields
from cvgnn.reference.propagation_matrix import dense_P as dense_P
from cvgnn.reference.propagation_matrix import neighbor_lists as neighbor_lists
from cvgnn.reference.sampling import SCHEMES as SCHEMES
from cvgnn.reference.sampling import P_hat as P_hat
from cvgnn.reference.sampling import P_hat_row as P_hat_row
from cvgnn.reference.sampling import draw_ranges as draw_ranges
from cvgnn.reference.sampling import num_draws as num_draws
from cvgnn.reference.sampling import positions as positions
from cvgnn.reference.spec import Spec as Spec
