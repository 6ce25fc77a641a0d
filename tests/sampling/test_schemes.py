from cvgnn import reference
from cvgnn.ops import sampling_kernels as kernels
from cvgnn.sampling import SCHEMES
from cvgnn.sampling.schemes import scheme_code


def test_names_and_numbers_agree_everywhere() -> None:
    assert SCHEMES == reference.SCHEMES
    numbers = [kernels.WITHOUT_REPLACEMENT, kernels.WITH_REPLACEMENT, kernels.PAPER, kernels.RELEASED]
    assert [scheme_code(name) for name in SCHEMES] == numbers
