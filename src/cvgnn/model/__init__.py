"""The GCN and its exact inference."""

from cvgnn.model.gcn import GCN as GCN
from cvgnn.model.gcn import INITS as INITS
from cvgnn.model.gcn import NORMS as NORMS
from cvgnn.model.gcn import GCNLayer as GCNLayer
from cvgnn.model.gcn import Norm as Norm
from cvgnn.model.gradient import ByHand as ByHand
from cvgnn.model.gradient import check_labels as check_labels
from cvgnn.model.gradient import loss_and_gradient as loss_and_gradient
from cvgnn.model.inference import each_hidden as each_hidden
from cvgnn.model.inference import exact_embedding as exact_embedding
from cvgnn.model.inference import exact_hidden as exact_hidden
from cvgnn.model.inference import exact_logits as exact_logits
from cvgnn.model.small import Loss as Loss
