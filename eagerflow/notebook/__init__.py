"""What notebooks show: views of tensors, graphs, models and errors, magics, and a bar of progress.

Views are HTML and SVG without scripts and without styles of a page's own: colours are the page's
(``currentColor``) or hues that can be seen on light and dark paper alike.
"""
