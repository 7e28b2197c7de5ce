"""Result files, figures and the HTML report."""
