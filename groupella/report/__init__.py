"""Reporting: tables, figures and one self-contained HTML page about what was selected."""

from ._advice import next_steps as next_steps
from ._content import Confusion as Confusion
from ._content import Example as Example
from ._content import FilterPicture as FilterPicture
from ._content import HeldOutScore as HeldOutScore
from ._content import LayerError as LayerError
from ._content import ReportContent as ReportContent
from ._content import ReportTable as ReportTable
from ._figures import figures as figures
from ._figures import save_figures as save_figures
from ._measure import filter_pictures as filter_pictures
from ._measure import layer_errors as layer_errors
from ._measure import paired as paired
from ._page import page as page
from ._page import write_report as write_report
from ._tables import consequences_table as consequences_table
from ._tables import errors_table as errors_table
from ._tables import markdown as markdown
from ._tables import shares_table as shares_table
from ._words import obeys as obeys
from ._words import sentence as sentence
