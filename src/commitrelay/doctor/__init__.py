"""Doctor: looks for what goes wrong in practice, and says what to do about it.

One file per check. A check asks the patient a few questions, changes nothing, and answers with
findings: none if all is well.
"""

from commitrelay.doctor.check import Check, Finding
from commitrelay.doctor.examination import CHECKS, Report, examine
from commitrelay.doctor.patient import Patient

__all__ = ["CHECKS", "Check", "Finding", "Patient", "Report", "examine"]
