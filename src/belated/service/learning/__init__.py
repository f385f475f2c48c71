"""Learners, which fold journals, settle windows, fit, save and publish models."""
