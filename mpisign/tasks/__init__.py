"""What is learned: data sets, how they are split among workers, and small models for them."""
