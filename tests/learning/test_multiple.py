from sklearn.utils.estimator_checks import parametrize_with_checks

from visionkl.learning.multiple import FourierMKLClassifier, FourierMKLRegressor


@parametrize_with_checks(
    [
        FourierMKLClassifier(n_components=50),
        FourierMKLClassifier(n_components=50, loss="logistic"),
        FourierMKLRegressor(n_components=50),
    ]
)
def test_scikit_learn_is_content(estimator, check):
    check(estimator)
