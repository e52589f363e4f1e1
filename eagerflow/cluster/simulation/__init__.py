"""What training over many machines would cost: predicted from numbers, nothing is started."""
