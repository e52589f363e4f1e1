"""Functions of images, signals and volumes, channels last."""
