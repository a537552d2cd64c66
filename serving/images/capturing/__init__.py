"""The program of the container that captures a Job's output: it pushes the image to the Model's registry."""
