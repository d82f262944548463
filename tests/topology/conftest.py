"""Random examples without a deadline: on a busy machine any of them may take long."""

from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
