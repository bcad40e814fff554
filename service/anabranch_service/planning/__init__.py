"""The leader's work: input and plans of epochs, forecasts, cost constants, removal of queries."""
