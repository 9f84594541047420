"""What exporting costs: P1 to P10, P22, and P25 on, of the project's goals, and how cost grows.

======================  ========================================================
:mod:`.models`          what is exported
:mod:`.peers`           what trt-et is compared with, and builders without work
:mod:`.tasks`           one measurement, in a process of its own
:mod:`.processes`       runs them
:mod:`.goals`           P1 to P10, P22, P25 on
:mod:`.curves`          cost by parameters and by partitions, with a linear fit
:mod:`.__main__`        the command, the table, and ``results/aot.json``
======================  ========================================================
"""
