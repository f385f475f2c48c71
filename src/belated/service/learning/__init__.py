"""Learners, which fold journals, settle reward windows, and fit, save and publish models."""
