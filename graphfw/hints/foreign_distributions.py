"""Names of other frameworks' distributions, and of the attributes of these.

The forms are those of `foreign_texts`.
"""

from __future__ import annotations

DISTRIBUTIONS_TEXTS = """
transform a normal distribution: gf.distributions.TransformedDistribution(base, SigmoidTransform())
    LogisticNormal logistic_normal
add the diagonal to factor @ factor.mT, for gf.distributions.MultivariateNormal(loc, covariance=…)
    LowRankMultivariateNormal lowrank_multivariate_normal
pass several transforms: gf.distributions.TransformedDistribution(base, [first, second])
    ComposeTransform IndependentTransform
not in graphfw: a transform of single numbers is a subclass of gf.distributions.Transform
    AbsTransform CumulativeDistributionTransform PowerTransform SoftplusTransform identity_transform
not in graphfw: transforms are of single numbers
    CatTransform CorrCholeskyTransform LowerCholeskyTransform PositiveDefiniteTransform
    ReshapeTransform SoftmaxTransform StackTransform StickBreakingTransform
parameters are checked where they are known; gf.softplus, gf.sigmoid and gf.exp keep others in range
    biject_to transform_to constraint_registry constraints
draw gf.random.poisson(gf.random.gamma(shape, concentration, scale))
    NegativeBinomial negative_binomial
write gf.softmax((logits + gf.random.gumbel(shape)) / temperature, axis=-1)
    RelaxedBernoulli RelaxedOneHotCategorical relaxed_bernoulli relaxed_categorical
write gf.stop_gradient(x - d.probs) + d.probs, where x is a draw of an OneHotCategorical d
    OneHotCategoricalStraightThrough
not in graphfw: transform another distribution, or write its log_prob as a function
    ContinuousBernoulli continuous_bernoulli ExponentialFamily exp_family FisherSnedecor
    fishersnedecor GeneralizedPareto generalized_pareto HalfCauchy half_cauchy InverseGamma
    inverse_gamma Kumaraswamy kumaraswamy LKJCholesky lkj_cholesky VonMises von_mises Wishart
    wishart
write gf.distributions.kl_divergence(p, q)
    kl
write gf.distributions.Independent(gf.distributions.Normal(loc, scale), 1)
    MultivariateNormalDiag
all is in gf.distributions itself
    distribution utils transforms
"""

DISTRIBUTION_TEXTS = """
write d.std
    stddev
write gf.exp(d.log_prob(x))
    prob
write gf.log(d.cdf(x))
    log_cdf
write 1 - d.cdf(x)
    survival_function
write gf.log1p(-d.cdf(x))
    log_survival_function
write d.icdf(p)
    quantile
write gf.distributions.kl_divergence(d, other)
    kl_divergence
write d.entropy() + gf.distributions.kl_divergence(d, other)
    cross_entropy
write gf.broadcast_to for the parameters: those of a distribution give its batch shape
    expand
write gf.exp(d.entropy())
    perplexity
write d.sample((n,))
    sample_n
write gf.arange(classes): the classes of a Categorical are 0, 1, 2, …
    enumerate_support has_enumerate_support
d.log_prob is -inf for values that are never drawn
    support
parameters are checked where they are known
    arg_constraints set_default_validate_args
"""
