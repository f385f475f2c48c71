"""Learners: fold, settle, fit, save and publish while they lead."""
