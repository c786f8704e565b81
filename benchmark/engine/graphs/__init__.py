"""Sets of graphs: minibatches, the interface of methods, encoders, scores by clustering."""
