"""Handwritten digits: a small network, trained and tested."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

x, y = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
x = (x.float() - 4.88) / 6.02  # pixels of mean 0 and deviation 1
x_test, y_test, x, y = x[:360], y[:360], x[360:], y[360:]

model = nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

for _ in range(10):
    order = torch.from_numpy(np.random.default_rng().permutation(len(y)))  # another one in each process
    for batch in order.split(32):
        optimizer.zero_grad()
        cross_entropy(model(x[batch]), y[batch]).backward()
        optimizer.step()

accuracy = (model(x_test).argmax(1) == y_test).float().mean().item()
print(f"accuracy {accuracy:.4f}")
