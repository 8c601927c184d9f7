"""The Laplace evidence of a network: its value, its gradient, and steps that raise it.

With weights w at (or near) their MAP value, H the curvature of −log p(D | w) there and δ the prior
precisions,

    log p(D) ≈ log p(D | w) + log p(w) + P/2 log 2π − ½ log |H + diag δ|
             = log p(D | w) − Σ_g [ ½ δ_g ‖w_g‖² + ½ Σ_i log(1 + λ_gi / δ_g) ],

g over prior groups, λ_gi the eigenvalues of the group's blocks: the data fit minus one Occam factor
per group (MacKay 1992; Immer et al. 2021). `observe` stores the eigenvalues; after it, value,
gradient and steps in the precisions need no further pass over the data.

Gaussian noise σ scales H by σ⁻², so it is learned from the same cache: ∂/∂log σ = SSE/σ² − M + γ,
with M the number of observed outputs and γ summed over groups.

MacKay, "Bayesian interpolation", Neural Computation 4(3), 1992.
Immer, Bauer, Fortuin, Rätsch, Khan, "Scalable marginal likelihood estimation for model selection in
deep learning", ICML 2021.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch import distributed as dist

from groupella.curvature import Curvature, KroneckerBlock, curvature, hypergradient, matching

from ._fit_of_data import Data, DataFit, data_fit
from ._linearised import best_log_precision, group_profile, shrink_weights
from ._prior import Prior
from ._report import EvidenceReport, GroupTerm
from ._spectrum import Spectrum
from .likelihoods import Likelihood

Method = Literal["adam", "fixed_point", "linearised"]
T = TypeVar("T")


class Evidence:
    """The Laplace evidence of a network.

    A training loop needs three calls: `loss` for the weights, `update` now and then for the
    precisions, and `groupella.decide.selection(network, evidence)` at the end.

    Parameters
    ----------
    network
        Any network; see `groupella.curvature.curvature`.
    likelihood
        One of `groupella.evidence.likelihoods`, or a `Likelihood` of your own.
    prior
        Prior precisions; by default `Prior.from_network(network, ignore=ignore)`.
    ignore
        Names of parameters, or patterns such as "norm.*", without prior and curvature. A prior of
        your own has its own: `Prior.from_network(network, ignore=…)`.

    Raises
    ------
    ValueError
        If the prior does not cover exactly the parameters of the network, or if `ignore` names a
        parameter that it does cover.
    """

    def __init__(
        self,
        network: nn.Module,
        likelihood: Likelihood,
        prior: Prior | None = None,
        *,
        ignore: Sequence[str] = (),
    ) -> None:
        self.network = network
        self.likelihood = likelihood
        self.prior = Prior.from_network(network, ignore=ignore) if prior is None else prior
        self._check_names(ignore)
        self.optimiser: torch.optim.Adam | None = None
        self._blocks: Curvature | None = None
        self._spectrum: Spectrum | None = None
        self._fit: DataFit | None = None

    def loss(self, f: Tensor, y: Tensor, n_data: int) -> Tensor:
        """Return −log p(y | f) / batch + ½ Σ δ‖w‖² / N, whose minimum over all data is the MAP.

        Parameters
        ----------
        f, y
            Network outputs (batch, K) and targets of a batch.
        n_data
            N, the number of examples in the training set.
        """
        fit = -self.likelihood.log_likelihood(f, y) / f.shape[0]
        return fit + self.prior.penalty(self.network).to(fit) / n_data

    def observe(self, blocks: Curvature, fit: DataFit) -> None:
        """Store the curvature and the data fit of the present weights."""
        self._spectrum = Spectrum.of(blocks, self.prior, constants=self.constants)
        self._blocks = blocks
        self._fit = fit

    def collect(
        self,
        data: Data,
        *,
        curvature_data: Data | None = None,
        n_data: int | None = None,
        gradient: bool = False,
        group: dist.ProcessGroup | None = None,
        **options: Any,
    ) -> None:
        """Pass over the data and `observe` their curvature and fit.

        Parameters
        ----------
        data
            A pair (x, y) of tensors, or a re-iterable of batches such as a DataLoader.
        curvature_data
            The part of `data` on which to compute the curvature, in either form; by default all.
            It represents all of `data`. `subset=n` lets n examples be chosen instead.
        n_data
            The number of examples that `data` represent, of all processes together; by default
            their own number.
        gradient
            Whether to compute the gradient of the fit, which the method "linearised" uses.
        group
            Process group of torch.distributed to sum over; each process passes its own data.
        options
            Passed to `groupella.curvature.curvature`: `subset`, `mode`, `approximation`, …
        """
        blocks = curvature(
            self.network,
            self.likelihood,
            data if curvature_data is None else curvature_data,
            ignore=self.unpriored,
            group=group,
            **options,
        )
        fit = data_fit(self.network, self.likelihood, data, gradient=gradient, group=group)
        if n_data is not None:
            fit = fit.representing(n_data)
        if curvature_data is not None or n_data is not None:
            blocks = _representing(blocks, fit.n_data)
        self.observe(blocks, fit)

    @property
    def constants(self) -> frozenset[str]:
        """Parameters that do not require a gradient: they have neither prior nor curvature."""
        return frozenset(n for n, p in self.network.named_parameters() if not p.requires_grad)

    @property
    def unpriored(self) -> tuple[str, ...]:
        """Parameters without a prior: hyperparameters, and those to ignore."""
        return (*self.prior.hyperparameters, *self.prior.ignored)

    @property
    def is_observed(self) -> bool:
        """Whether curvature and fit have been collected."""
        return self._spectrum is not None

    @property
    def blocks(self) -> Curvature:
        """The curvature last observed."""
        return _observed(self._blocks)

    @property
    def fit(self) -> DataFit:
        """The data fit last observed."""
        return _observed(self._fit)

    @property
    def spectrum(self) -> Spectrum:
        """The eigenvalues at the present noise."""
        found = _observed(self._spectrum)
        return found if self.learned_noise is None else found.scaled(self.noise_scale)

    @property
    def noise_scale(self) -> float:
        """The factor by which the change of noise since `observe` scales the curvature."""
        return 1.0 if self.learned_noise is None else self.fit.noise_scale(self.likelihood)

    @property
    def learned_noise(self) -> nn.Parameter | None:
        """log σ of the likelihood where it is learned, else None."""
        noise = self.likelihood.log_noise
        return noise if noise is not None and noise.requires_grad else None

    @property
    def log_evidence(self) -> float:
        """log p(D) in nats, from what was observed last."""
        return float(self.log_marginal_likelihood().detach())

    def log_marginal_likelihood(
        self,
        blocks: Mapping[str, KroneckerBlock] | None = None,
        log_likelihood: Tensor | float | None = None,
    ) -> Tensor:
        """Return log p(D), a float64 scalar that is differentiable in the log-precisions.

        Without arguments it uses what was observed last. Blocks with a graph
        (`curvature(..., differentiable=True)`) and a log likelihood of the same data make it
        differentiable in the parameters of that graph, too.
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
        """Return γ of every group: (groups,) float64."""
        return self.spectrum.effective_parameters(self.prior.log_precision)

    def gradient(self) -> Tensor:
        """Return ∂ log p(D) / ∂ log δ = ½ (γ − δ‖w‖²), zero for groups that are not learned."""
        gradient = 0.5 * (self.effective_parameters() - self.prior.precisions * self.squared_norms)
        return torch.where(self.prior.learned, gradient, torch.zeros_like(gradient))

    def noise_gradient(self) -> float:
        """Return ∂ log p(D) / ∂ log σ for Gaussian noise."""
        squares, outputs = self.fit.squares, self.fit.outputs
        assert self.likelihood.log_noise is not None
        variance = math.exp(2 * float(self.likelihood.log_noise.detach()))
        return squares / variance - outputs + float(self.effective_parameters().sum())

    def step(self, method: Method = "fixed_point", steps: int = 10, lr: float = 0.1) -> None:
        """Raise the evidence in the precisions and the noise without a pass over the data.

        Parameters
        ----------
        method
            "fixed_point": MacKay's update δ ← γ/‖w‖²; "adam": Adam on log δ; "linearised": the best
            δ with the weights following, which shrinks the weights of groups whose precision rose.
        steps
            Number of updates, for "fixed_point" and "adam".
        lr
            Learning rate of "adam".
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
        data: Data,
        method: Method = "fixed_point",
        steps: int = 10,
        lr: float = 0.1,
        **options: Any,
    ) -> float:
        """`collect(data, **options)`, then `step`; return the log evidence afterwards."""
        self.collect(data, gradient=method == "linearised", **options)
        self.step(method, steps, lr)
        return self.log_evidence

    def hyper_gradient(
        self,
        data: Data,
        names: Sequence[str] | None = None,
        *,
        n_data: int | None = None,
        **options: Any,
    ) -> dict[str, Tensor]:
        """Return ∂ log p(D) / ∂ of parameters inside the network, through fit and factors.

        Nothing is written to `.grad`.

        Parameters
        ----------
        data
            A pair (x, y) of tensors or a re-iterable of batches.
        names
            Qualified names of the parameters; by default the prior's hyperparameters (lengthscales,
            anchor positions).
        n_data
            The number of examples that `data` represent; by default their own number.
        options
            Passed to `groupella.curvature.hypergradient`, such as `passes=2` to save memory.
        """
        chosen = list(self.prior.hyperparameters if names is None else names)
        if not chosen:
            return {}
        fit = data_fit(self.network, self.likelihood, data, gradient=True)
        assert fit.gradient is not None
        represented = fit.n_data if n_data is None else n_data

        def occam(blocks: Curvature) -> Tensor:
            return self.log_marginal_likelihood(_representing(blocks, represented), 0.0)

        _, found = hypergradient(
            occam,
            self.network,
            self.likelihood,
            data,
            chosen,
            ignore=[n for n in self.unpriored if n not in chosen],
            **options,
        )
        share = represented / fit.n_data
        return {n: g - share * fit.gradient[n] for n, g in found.items()}

    def report(self) -> EvidenceReport:
        """Return the terms of the evidence: data fit, and each group's Occam factor and γ."""
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
        return EvidenceReport(self.fit.n_data, fitted, terms, self.noise)

    @property
    def noise(self) -> float | None:
        """The standard deviation of Gaussian noise, None for other likelihoods."""
        noise = self.likelihood.log_noise
        return None if noise is None else float(noise.detach().exp())

    def _fixed_point(self, steps: int) -> None:
        """MacKay's updates, damped.

        γ decreases with δ, so repeated updates alternate around the maximum and do not converge
        where δ ≫ λ. All but the first therefore go half of the way in log δ.
        """
        prior = self.prior
        norms = self.squared_norms
        for step in range(steps):
            before = prior.log_precision.detach().clone()
            target = self.spectrum.fixed_point(before, norms, prior.bounds)
            target = torch.where(prior.learned, target, before)
            with torch.no_grad():
                prior.log_precision.copy_(target if step == 0 else 0.5 * (before + target))
            if self.learned_noise is not None:
                self._noise_fixed_point(self.learned_noise)
            elif float((target - before).abs().max()) < 1e-10:
                break

    def _noise_fixed_point(self, log_noise: nn.Parameter) -> None:
        """σ² ← SSE / (M − γ), MacKay's other equation."""
        gamma = float(self.effective_parameters().sum())
        freedom = max(self.fit.outputs - gamma, 1e-3 * self.fit.outputs)
        variance = max(self.fit.squares / freedom, 1e-12 * self.likelihood.scale**2)
        with torch.no_grad():
            log_noise.fill_(0.5 * math.log(variance))

    def _linearised(self) -> None:
        prior, network, blocks, scale = self.prior, self.network, self.blocks, self.noise_scale
        found = prior.log_precision.detach().clone()
        learned = prior.learned.tolist()
        for i, group in enumerate(prior):
            if not learned[i]:
                continue
            before = float(found[i].exp())
            values, squares = group_profile(
                group, blocks, network, before, self.fit.gradient, scale
            )
            if values.numel():
                found[i] = best_log_precision(values, squares, prior.bounds)
                shrink_weights(group, blocks, network, before, float(found[i].exp()), scale)
        with torch.no_grad():
            prior.log_precision.copy_(found)
        if self.learned_noise is not None:
            self._noise_fixed_point(self.learned_noise)

    def hyper_optimiser(self, lr: float = 0.1) -> torch.optim.Adam:
        """Return the Adam optimiser of log-precisions and log noise, created when first needed."""
        if self.optimiser is None:
            learned = [p for p in (self.prior.log_precision, self.learned_noise) if p is not None]
            self.optimiser = torch.optim.Adam(learned, lr=lr)
        return self.optimiser

    def _adam(self, steps: int, lr: float) -> None:
        optimiser = self.hyper_optimiser(lr)
        for group in optimiser.param_groups:
            group["lr"] = lr
        for _ in range(steps):
            self.prior.log_precision.grad = -self.gradient()
            if (noise := self.learned_noise) is not None:
                noise.grad = torch.full_like(noise, -self.noise_gradient())
            optimiser.step()
            self.prior.clamp_()
        optimiser.zero_grad(set_to_none=True)

    def _check_names(self, ignore: Sequence[str]) -> None:
        known = [n for n in matching(self.network, ignore) if n not in self.prior.ignored]
        if known:
            raise ValueError(
                f"ignore names {', '.join(known[:3])}, but the prior that was given does not: make "
                "it with Prior.from_network(network, ignore=…)"
            )
        present = dict(self.network.named_parameters())
        absent = [p for g in self.prior for p in g.parameters if p not in present]
        if absent:
            raise ValueError(
                f"the prior was made for another network: it names {', '.join(absent[:3])}, "
                "which this network does not have"
            )
        covered = {p for g in self.prior for p in g.parameters} | set(self.unpriored)
        bare = [n for n, p in present.items() if p.requires_grad and n not in covered]
        if bare:
            raise ValueError(
                f"the prior has no group for {', '.join(bare[:3])}; make it with "
                "Prior.from_network(network) after the network is complete"
            )


def _observed(found: T | None) -> T:
    if found is None:
        raise RuntimeError("no curvature yet: call collect(data) or update(data) first")
    return found


def _representing(blocks: Curvature, n: int) -> Curvature:
    """The curvature of a part of the data, scaled to represent n of them."""
    return Curvature({k: replace(b, n_data=float(n)) for k, b in blocks.items()}, n)
