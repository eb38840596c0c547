// What the dashboard shows beside metrics: a module for each feature, registered in one line.
//
// A module has Feed (reads how all stand, calls back, and has all(), of(metric) and problem), Panel (shows them),
// section() (an empty element for a panel), isOnFirstPage where the first page has a panel of all, textOf(one) for the filter there
// and, if a metric's history shows something of it, marks(found, label) and caption; flagOf(found) is what a metric's card says of it, or null.

import * as alarms from "./alarms.js";
import * as comparisons from "./comparisons.js";

export const FEATURES = [alarms, comparisons];
