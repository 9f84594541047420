"""Times of a call on a GPU: our engines next to eager PyTorch and ``torch.compile``, in float16."""
