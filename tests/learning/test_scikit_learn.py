"""scikit-learn's own checks of estimators."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from visionkl.learning.svm import BundleSVC, BundleSVR

#: One check compares results of two fits to rounding.
TIGHT = 1e-13


@parametrize_with_checks([BundleSVC(tol=TIGHT), BundleSVR(tol=TIGHT)])
def test_scikit_learn_is_content(estimator, check):
    check(estimator)
