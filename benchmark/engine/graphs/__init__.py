"""Sets of graphs: minibatches, the interface of methods, scores by clustering."""
