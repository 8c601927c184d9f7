"""Batch normalisation with constant statistics: an affine map of each channel."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


class FrozenBatchNorm(_BatchNorm):
    """`nn.BatchNormNd` that always uses its running statistics, in training as well."""

    def train(self, mode: bool = True) -> FrozenBatchNorm:
        """Stay in evaluation mode."""
        return super().train(False)

    def _check_input_dim(self, input: Tensor) -> None:
        """Take any number of sites."""


def freeze_statistics(network: nn.Module) -> nn.Module:
    """Make the statistics of all `nn.BatchNormNd` of a network constants, in place.

    Weights before a batch normalisation have no scale of their own while it uses the statistics of
    the batch, and a prior on them is not one on the function. With constants they have. Factors and
    biases are still trained.

    Parameters
    ----------
    network
        A trained network, or one whose statistics are those of the data.

    Returns
    -------
    nn.Module
        The network itself, or its replacement where it is itself a batch normalisation.

    Raises
    ------
    ValueError
        If a batch normalisation has no running statistics.

    References
    ----------
    Antorán et al., "Adapting the Linearised Laplace Model Evidence for Modern Deep Learning",
    ICML 2022.
    """
    if isinstance(network, _BatchNorm):
        return _frozen(network, "the network")
    for name, module in list(network.named_modules()):
        for child_name, child in list(module.named_children()):
            if isinstance(child, _BatchNorm) and not isinstance(child, FrozenBatchNorm):
                where = f"{name}.{child_name}" if name else child_name
                setattr(module, child_name, _frozen(child, where))
    return network


def _frozen(norm: _BatchNorm, name: str) -> FrozenBatchNorm:
    if norm.running_mean is None or norm.running_var is None:
        raise ValueError(
            f"{name} has no running statistics to freeze: build it with track_running_stats=True"
        )
    frozen = FrozenBatchNorm(norm.num_features, norm.eps, norm.momentum, norm.affine)
    frozen.weight, frozen.bias = norm.weight, norm.bias
    frozen._buffers.update(norm._buffers)
    return frozen.eval()
