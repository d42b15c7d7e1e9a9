"""Private-kNN over many parties (Zhu et al., CVPR 2020): a kind of question that comes from outside the package.

`question` says what is asked, `party` how records answer, `coordinator` what follows.
docs/research/private-knn.md proves it.
"""
