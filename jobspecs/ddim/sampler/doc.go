// Package sampler draws clips by diffusion, with the exact denoiser of a finite bank.
//
// For data that is one of K clips c_k with prior p_k, seen through Gaussian noise of scale sigma, the best denoiser is the
// posterior mean
//
//	D(x, sigma) = sum_k w_k c_k,   w = softmax_k(log p_k - |x - c_k|^2 / (2 sigma^2))
//
// and the probability-flow ODE (or its stochastic relatives) driven by D carries noise to clips drawn from the prior. The
// schedule is Karras et al. 2022 (arXiv:2206.00364, eq. 5); the solvers are DPM-Solver++(2M) and SDE-DPM-Solver++(2M) of Lu et
// al. 2022 (arXiv:2211.01095), for data prediction and alpha = 1. Both use the previous step's D, which therefore belongs to
// the state.
//
// The frames of a clip are spread over ranks. The distance |x - c_k|^2 needs all frames, hence one reduction a step. Its
// summands are the distances of single frames, added in frame order, and noise is a function of (seed, step, frame): so the
// result has the same bits at every number of ranks, and however often it was stopped and resumed.
//
// Products that are added to something are written float64(x*y): the Go specification lets a compiler fuse x*y + z, as it
// does on arm64 and not on amd64, and forbids it across an explicit conversion. math.Exp, Log and Sincos still differ between
// architectures in the last bit, so that equal bits are promised on one architecture only; ranks of different
// architectures refuse each other.
package sampler
