"""Rich output in notebooks: tensors, graphs, models and errors, magics, and a progress bar.

Views are HTML and SVG without scripts and without style sheets: colours are the page's
(``currentColor``) or hues that are visible on light and dark backgrounds.
"""
