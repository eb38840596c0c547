"""The papers' tables and figures, from the product's own estimators."""
