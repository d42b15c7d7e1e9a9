"""The classifiers that a party fits on its own records; each kind is one file behind `base.Teacher`."""
