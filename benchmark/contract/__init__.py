"""The contract: checks for methods, datasets, partitions, splits and backbones."""
