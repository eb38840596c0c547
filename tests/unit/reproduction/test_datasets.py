"""Published records are read in the formats that they are published in."""

from pathlib import Path

import pytest

from reproduction.datasets import read_records

SALARIES = """\
Year,EmployerType,EmployerName,DepartmentOrSubdivision,Position,ElectedOfficial,Judicial,\
OtherPositions,MinPositionSalary,MaxPositionSalary,ReportedBaseWage,RegularPay,OvertimePay,\
LumpSumPay,OtherPay,TotalWages,DefinedBenefitPlanContribution,EmployeesRetirementCostCovered
2022,State,University of California,Davis,"Dean, acting",False,False,,0,,,70000,0,0,5.5,70005.5,0,0
2022,State,University of California,Davis,Nurse,False,False,,0,,,"100,000",1,0,0,"100,001",0,0
2022,State,University of California,Davis,Nurse,False,False,,0,,,0,0,0,0,0,0,0
"""
CANCERS = """\
AREA|AGE_ADJUSTED_CI_LOWER|AGE_ADJUSTED_CI_UPPER|AGE_ADJUSTED_RATE|COUNT|EVENT_TYPE|POPULATION|RACE|SEX|SITE|YEAR
Colorado|1|2|1.5|9999|Incidence|5000000|All Races|Male and Female|All Cancer Sites Combined|2020
Colorado|1|2|1.5|4100|Incidence|2500000|All Races|Female|Female Breast|2020
Colorado|1|2|1.5|4150|Incidence|5000000|All Races|Male and Female|Male and Female Breast|2020
Colorado|1|2|1.5|700|Incidence|2500000|All Races|Female|Female Breast, <i>in situ</i>|2020
Colorado|1|2|1.5|3000|Incidence|2500000|All Races|Male|Prostate|2020
Colorado|1|2|1.5|1200|Incidence|2500000|All Races|Male|Lung and Bronchus|2020
Colorado|1|2|1.5|2500|Incidence|5000000|All Races|Male and Female|Lung and Bronchus|2020
Colorado|1|2|1.5|2400|Mortality|5000000|All Races|Male and Female|Lung and Bronchus|2020
Colorado|1|2|1.5|2000|Incidence|5000000|White|Male and Female|Lung and Bronchus|2020
Colorado|1|2|1.5|2600|Incidence|5000000|All Races|Male and Female|Lung and Bronchus|2019
Colorado|~|~|~|~|Incidence|5000000|All Races|Male and Female|Mesothelioma|2020
Wyoming|1|2|1.5|300|Incidence|500000|All Races|Male|Prostate|2020
"""
RATINGS = """\
userId,movieId,rating,timestamp
1,307,3.5,1256677221
1,481,4.5,1256677456
3,1,0.5,945078428
"""


def written(folder: Path, text: str) -> str:
    path = folder / "records.csv"
    path.write_text(text)
    return str(path)


def test_salaries_are_what_each_is_paid_in_all(tmp_path: Path) -> None:
    read = read_records(written(tmp_path, SALARIES))
    assert read.wages is not None
    assert read.wages.tolist() == [70005.5, 100001.0]
    assert read.held == {"wages"}
    assert read.told == ("records.csv: 2 salaries",)


def test_cancers_are_the_sites_of_one_state_and_year_that_hold_no_others(tmp_path: Path) -> None:
    read = read_records(written(tmp_path, CANCERS))
    assert read.cases is not None
    assert read.cases.tolist() == [4100, 3000, 2500]
    assert read.told == ("records.csv: 9,600 cases in Colorado, 2020",)


def test_ratings_become_means_and_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for piece in (1, 2, 1_000_000):
        monkeypatch.setattr("reproduction.datasets.PIECE", piece)
        read = read_records(written(tmp_path, RATINGS))
        lowest, _, fewest, _ = read.tasks
        assert lowest.values.tolist() == [4.0, 0.5]
        assert fewest.values.tolist() == [2.0, 1.0]
        assert (lowest.kind, fewest.range) == ("minimum", (0.0, 53_889 / 2))
    assert read.told == ("records.csv: 3 ratings of 2 users",)
