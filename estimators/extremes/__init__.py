"""The minimum or maximum of private values, found in rounds of randomized answers.

`binary_search` has the questions and decisions, `tail` the exponent of the tail near the extreme.
"""

from estimators.extremes.binary_search import Decision as Decision
from estimators.extremes.binary_search import Progress as Progress
from estimators.extremes.binary_search import Search as Search
from estimators.extremes.binary_search import lower_alpha_setting as lower_alpha_setting
from estimators.extremes.binary_search import unknown_alpha_setting as unknown_alpha_setting
from estimators.extremes.tail import Tail as Tail
from estimators.extremes.tail import tail as tail
