"""The Laplace evidence of a network: its value, its gradient, and steps that raise it.

With weights w at (or near) their MAP value, H the curvature of −log p(D | w) there and δ the prior
precisions,

    log p(D) ≈ log p(D | w) + log p(w) + P/2 log 2π − ½ log |H + diag δ|
             = log p(D | w) − Σ_g [ ½ δ_g ‖w_g‖² + ½ Σ_i log(1 + λ_gi / δ_g) ],

g over prior groups, λ_gi the eigenvalues of the group's blocks: the data fit, less one Occam factor
a group. `observe` stores the eigenvalues; after it, value, gradient and steps in the precisions
cost no further pass over the data.

The noise σ of a Gaussian likelihood scales H by σ⁻², so it is learned from the same cache:
∂/∂log σ = SSE/σ² − M + γ, with M the number of observed outputs and γ summed over groups.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from groupella.curvature import Curvature, KroneckerBlock, curvature, hypergradient
from groupella.evidence.likelihoods import Gaussian, Likelihood

from ._fit_of_data import Batches, DataFit, data_fit
from ._linearised import best_log_precision, group_profile, shrink_weights
from ._prior import Prior
from ._report import EvidenceReport, GroupTerm
from ._spectrum import Spectrum

Method = Literal["adam", "fixed_point", "linearised"]


class Evidence:
    """The evidence of `network` under `likelihood` and `prior`.

    A network's own loop needs three calls: `loss` for the weights, `update` now and then for the
    precisions, and `selection(network, evidence)` at the end.
    """

    def __init__(
        self, network: nn.Module, likelihood: Likelihood, prior: Prior | None = None
    ) -> None:
        self.network = network
        self.likelihood = likelihood
        self.prior = Prior.from_network(network) if prior is None else prior
        self._check_names()
        self.optimiser: torch.optim.Adam | None = None
        self._blocks: Curvature | None = None
        self._spectrum: Spectrum | None = None
        self._fit: DataFit | None = None

    def loss(self, f: Tensor, y: Tensor, n_data: int) -> Tensor:
        """−log p(y | f) / batch + ½ Σ δ‖w‖² / N, whose minimum over all data is the MAP."""
        fit = -self.likelihood.log_likelihood(f, y) / f.shape[0]
        return fit + self.prior.penalty(self.network).to(fit) / n_data

    def observe(self, blocks: Curvature, fit: DataFit) -> None:
        """Remember curvature and data fit of the present weights."""
        self._spectrum = Spectrum.of(blocks, self.prior, constants=self.constants)
        self._blocks = blocks
        self._fit = fit

    def collect(
        self,
        data: tuple[Tensor, Tensor] | Batches,
        *,
        subset: int | None = None,
        gradient: bool = False,
        **options: Any,
    ) -> None:
        """Pass over `data`: curvature on `subset` of them (all by default), fit on all.

        `data` is a pair (x, y) of tensors or a re-iterable of batches such as a DataLoader; further
        options go to `groupella.curvature.curvature`. `gradient=True` also takes the gradient
        of the fit, which the method "linearised" uses.
        """
        blocks = curvature(
            self.network,
            self.likelihood,
            data,
            subset=subset,
            ignore=self.uncovered,
            **options,
        )
        fit = data_fit(self.network, self.likelihood, data, gradient=gradient)
        self.observe(blocks, fit)

    @property
    def constants(self) -> frozenset[str]:
        """Parameters that do not require a gradient: not random, so without prior and curvature."""
        return frozenset(n for n, p in self.network.named_parameters() if not p.requires_grad)

    @property
    def uncovered(self) -> tuple[str, ...]:
        """Parameters for which no curvature block is wanted: the network's hyperparameters."""
        return self.prior.hyperparameters

    @property
    def is_observed(self) -> bool:
        return self._spectrum is not None

    @property
    def blocks(self) -> Curvature:
        """The curvature last observed."""
        if self._blocks is None:
            raise RuntimeError("no curvature yet: call collect(data) or update(data) first")
        return self._blocks

    @property
    def fit(self) -> DataFit:
        """The data fit last observed."""
        if self._fit is None:
            raise RuntimeError("no data fit yet: call collect(data) or update(data) first")
        return self._fit

    @property
    def spectrum(self) -> Spectrum:
        """Eigenvalues at the present noise."""
        if self._spectrum is None:
            raise RuntimeError("no curvature yet: call collect(data) or update(data) first")
        return self._spectrum.scaled(self.noise_scale) if self.learns_noise else self._spectrum

    @property
    def noise_scale(self) -> float:
        """By how much the change of noise since `observe` multiplies the curvature."""
        return self.fit.noise_scale(self.likelihood) if self.learns_noise else 1.0

    @property
    def learns_noise(self) -> bool:
        return isinstance(self.likelihood, Gaussian) and self.likelihood.log_noise.requires_grad

    def log_marginal_likelihood(
        self,
        blocks: Mapping[str, KroneckerBlock] | None = None,
        log_likelihood: Tensor | float | None = None,
    ) -> Tensor:
        """log p(D), a float64 scalar, differentiable in the log-precisions.

        Without arguments, from what was observed last. With blocks that carry a graph
        (`curvature(..., differentiable=True)`) and a log likelihood that does, differentiable in
        the parameters of that graph too.
        """
        fitted: Tensor | float
        if blocks is None:
            spectrum, fitted = self.spectrum, self.fit.log_likelihood(self.likelihood)
        else:
            if log_likelihood is None:
                raise ValueError("blocks were given without the log likelihood of the same data")
            spectrum = Spectrum.of(
                blocks, self.prior, constants=self.constants, differentiable=True
            )
            fitted = log_likelihood
        log_precision = self.prior.log_precision
        shrinkage = 0.5 * log_precision.exp() * self.squared_norms
        return fitted + (spectrum.log_volumes(log_precision) - shrinkage).sum()

    @property
    def squared_norms(self) -> Tensor:
        """‖w_g‖² of every group, detached: (groups,) float64."""
        return self.prior.squared_norms(self.network).detach()

    def effective_parameters(self) -> Tensor:
        """γ of every group: (groups,) float64."""
        return self.spectrum.effective_parameters(self.prior.log_precision)

    def gradient(self) -> Tensor:
        """∂ log p(D) / ∂ log δ in closed form: ½ (γ − δ‖w‖²), zero for groups not learned."""
        gradient = 0.5 * (self.effective_parameters() - self.prior.precisions * self.squared_norms)
        return torch.where(self.prior.learned, gradient, torch.zeros_like(gradient))

    def noise_gradient(self) -> float:
        """∂ log p(D) / ∂ log σ for a Gaussian likelihood."""
        squares, outputs = self.fit.squares, self.fit.outputs
        assert isinstance(self.likelihood, Gaussian)
        variance = math.exp(2 * float(self.likelihood.log_noise.detach()))
        return squares / variance - outputs + float(self.effective_parameters().sum())

    def step(self, method: Method = "fixed_point", steps: int = 10, lr: float = 0.1) -> None:
        """Raise the evidence in precisions (and noise) from the cache, without touching the data.

        "fixed_point" is MacKay's δ ← γ/‖w‖², repeated `steps` times; "adam" makes `steps` of Adam
        on log δ with rate `lr`; "linearised" takes the best δ with the weights following, and
        shrinks the weights of groups whose precision rose accordingly.
        """
        if method == "fixed_point":
            self._fixed_point(steps)
        elif method == "adam":
            self._adam(steps, lr)
        elif method == "linearised":
            self._linearised()
        else:
            raise ValueError(
                f"method must be 'adam', 'fixed_point' or 'linearised', got {method!r}"
            )

    def update(
        self,
        data: tuple[Tensor, Tensor] | Batches,
        method: Method = "fixed_point",
        steps: int = 10,
        lr: float = 0.1,
        *,
        subset: int | None = None,
        **options: Any,
    ) -> float:
        """`collect`, then `step`; returns the log evidence afterwards."""
        self.collect(data, subset=subset, gradient=method == "linearised", **options)
        self.step(method, steps, lr)
        return float(self.log_marginal_likelihood().detach())

    def hyper_gradient(
        self,
        data: tuple[Tensor, Tensor] | Batches,
        names: Sequence[str] | None = None,
        *,
        n_data: int | None = None,
        **options: Any,
    ) -> dict[str, Tensor]:
        """∂ log p(D) / ∂ of parameters inside the network, through fit and factors.

        `names` are qualified names; by default the prior's hyperparameters (lengthscales, anchor
        positions). `data` may be a part of the `n_data` data and then stands for all of them.
        Options, such as `passes=2` to save memory, go to `groupella.curvature.hypergradient`.
        Nothing is written to `.grad`.
        """
        chosen = list(self.prior.hyperparameters if names is None else names)
        if not chosen:
            return {}
        fit = data_fit(self.network, self.likelihood, data, gradient=True)
        assert fit.gradient is not None
        represented = fit.n_data if n_data is None else n_data

        def occam(blocks: Curvature) -> Tensor:
            whole = {k: replace(b, n_data=float(represented)) for k, b in blocks.items()}
            return self.log_marginal_likelihood(whole, 0.0)

        _, found = hypergradient(
            occam,
            self.network,
            self.likelihood,
            data,
            chosen,
            ignore=[n for n in self.uncovered if n not in chosen],
            **options,
        )
        share = represented / fit.n_data
        return {n: g - share * fit.gradient[n] for n, g in found.items()}

    def report(self) -> EvidenceReport:
        """The evidence taken apart: data fit, and for each group its Occam factor and γ."""
        with torch.no_grad():
            log_precision = self.prior.log_precision
            norms = self.squared_norms
            volumes = self.spectrum.log_volumes(log_precision)
            gammas = self.effective_parameters()
            values = zip(self.prior, log_precision.exp(), norms, volumes, gammas, strict=True)
            terms = tuple(
                GroupTerm(
                    name=group.name,
                    size=group.size,
                    precision=float(delta),
                    squared_norm=float(norm),
                    log_prior=-0.5 * float(delta * norm),
                    log_volume=float(volume),
                    effective_parameters=float(gamma),
                )
                for group, delta, norm, volume, gamma in values
            )
        fitted = self.fit.log_likelihood(self.likelihood)
        noise = None
        if isinstance(self.likelihood, Gaussian):
            noise = float(self.likelihood.noise.detach())
        return EvidenceReport(self.fit.n_data, fitted, terms, noise)

    def _fixed_point(self, steps: int) -> None:
        """γ decreases with δ, so repeated steps alternate around the maximum, and where δ ≫ λ they
        would never settle: after the first, each goes half-way (in log δ), which converges."""
        prior = self.prior
        norms = self.squared_norms
        for step in range(steps):
            before = prior.log_precision.detach().clone()
            target = self.spectrum.fixed_point(before, norms, prior.bounds)
            target = torch.where(prior.learned, target, before)
            with torch.no_grad():
                prior.log_precision.copy_(target if step == 0 else 0.5 * (before + target))
            if self.learns_noise:
                self._noise_fixed_point()
            elif float((target - before).abs().max()) < 1e-10:
                break

    def _noise_fixed_point(self) -> None:
        """σ² ← SSE / (M − γ), MacKay's other equation."""
        assert isinstance(self.likelihood, Gaussian)
        gamma = float(self.effective_parameters().sum())
        freedom = max(self.fit.outputs - gamma, 1e-3 * self.fit.outputs)
        variance = max(self.fit.squares / freedom, 1e-12)
        with torch.no_grad():
            self.likelihood.log_noise.fill_(0.5 * math.log(variance))

    def _linearised(self) -> None:
        prior = self.prior
        scale = self.noise_scale
        found = prior.log_precision.detach().clone()
        learned = prior.learned.tolist()
        for i, group in enumerate(prior):
            if not learned[i]:
                continue
            values, squares = group_profile(
                group,
                self.blocks,
                self.network,
                float(found[i].exp()),
                self.fit.gradient,
                scale,
            )
            if values.numel():
                before = float(found[i].exp())
                found[i] = best_log_precision(values, squares, prior.bounds)
                shrink_weights(
                    group, self.blocks, self.network, before, float(found[i].exp()), scale
                )
        with torch.no_grad():
            prior.log_precision.copy_(found)
        if self.learns_noise:
            self._noise_fixed_point()

    def hyper_optimiser(self, lr: float = 0.1) -> torch.optim.Adam:
        """The Adam optimiser of log-precisions and log noise; made when first needed."""
        if self.optimiser is None:
            parameters: list[nn.Parameter] = [self.prior.log_precision]
            if self.learns_noise:
                assert isinstance(self.likelihood, Gaussian)
                parameters.append(self.likelihood.log_noise)
            self.optimiser = torch.optim.Adam(parameters, lr=lr)
        return self.optimiser

    def _adam(self, steps: int, lr: float) -> None:
        optimiser = self.hyper_optimiser(lr)
        for group in optimiser.param_groups:
            group["lr"] = lr
        for _ in range(steps):
            self.prior.log_precision.grad = -self.gradient()
            if self.learns_noise:
                assert isinstance(self.likelihood, Gaussian)
                noise = self.likelihood.log_noise
                noise.grad = torch.full_like(noise, -self.noise_gradient())
            optimiser.step()
            self.prior.clamp_()
        optimiser.zero_grad(set_to_none=True)

    def _check_names(self) -> None:
        present = {n for n, _ in self.network.named_parameters()}
        absent = [p for g in self.prior for p in g.parameters if p not in present]
        if absent:
            raise ValueError(
                f"the prior was made for another network: it names {', '.join(absent[:3])}, "
                "which this network does not have"
            )
        covered = {p for g in self.prior for p in g.parameters} | set(self.prior.hyperparameters)
        bare = [
            n for n, p in self.network.named_parameters() if p.requires_grad and n not in covered
        ]
        if bare:
            raise ValueError(
                f"the prior has no group for {', '.join(bare[:3])}; make it with "
                "Prior.from_network(network) after the network is complete"
            )
