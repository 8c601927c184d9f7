"""A job, the directory it runs in, its budget, and the engines that run many of them."""
