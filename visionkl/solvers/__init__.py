"""Solvers: regularised losses of linear models, by planes (`bundle`) or in the dual (`linear`)."""
