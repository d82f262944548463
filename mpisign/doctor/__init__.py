"""What a bug report needs, and what would make training go wrong here: `python -m mpisign.doctor`."""
