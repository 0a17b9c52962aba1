"""Learning: classifiers and regressors that are scikit-learn estimators."""
